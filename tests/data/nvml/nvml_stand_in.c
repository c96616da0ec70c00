/* A stand-in for NVIDIA's libnvidia-ml.so.1 with the layout of nvml.h: two GPUs on NVLink, the second divided by MIG into
 * one instance (place 1 of 2), and what such devices do not support. For machines without a GPU; tests compile it.
 * The environment sets what changes: STAND_IN_USED_MIB, STAND_IN_UTILIZATION (percent), STAND_IN_REASONS (bits). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT = 7 };
typedef struct { int index, mig; } device;
static device gpu[2] = {{0, 0}, {1, 0}}, instance = {1, 1};
static unsigned long long reads;

static unsigned long long set(const char *name, unsigned long long otherwise) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 0) : otherwise;
}

int nvmlInit_v2(void) { return OK; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { (void)code; return "stand-in error"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { return snprintf(text, size, "580.95.05") < 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **handle) { *handle = &gpu[index]; return index < 2 ? OK : INVALID; }
int nvmlDeviceGetName(device *d, char *text, unsigned size) {
    return snprintf(text, size, d->mig ? "Stand-In MIG 1g.10gb" : "Stand-In GPU") < 0;
}
int nvmlDeviceGetUUID(device *d, char *text, unsigned size) {
    return snprintf(text, size, d->mig ? "MIG-stand-in" : "GPU-stand-in-%d", d->index) < 0;
}
int nvmlDeviceGetMemoryInfo(device *d, unsigned long long *memory) { /* total, free, used */
    memory[0] = (d->mig ? 10ULL : 80ULL) << 30; memory[2] = set("STAND_IN_USED_MIB", 3072) << 20; memory[1] = memory[0] - memory[2];
    return OK;
}
int nvmlDeviceGetCudaComputeCapability(device *d, int *major, int *minor) { (void)d; *major = 9; *minor = 0; return OK; }
int nvmlDeviceGetMigMode(device *d, unsigned *now, unsigned *pending) { *now = *pending = d->index == 1; return OK; }
int nvmlDeviceGetMaxMigDeviceCount(device *d, unsigned *count) { (void)d; *count = 2; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(device *d, unsigned place, device **handle) {
    (void)d; *handle = &instance; return place == 1 ? OK : NOT_FOUND;
}
int nvmlDeviceGetP2PStatus(device *a, device *b, int kind, int *status) {
    *status = kind == 2 && a != b ? 0 : 5; /* NVML_P2P_CAPS_INDEX_NVLINK; OK, NOT_SUPPORTED */
    return OK;
}
int nvmlDeviceGetEnforcedPowerLimit(device *d, unsigned *milliwatts) { (void)d; *milliwatts = 700000; return OK; }
int nvmlDeviceGetPciInfo_v3(device *d, void *info) { (void)d; (void)info; return NOT_SUPPORTED; }
int nvmlDeviceGetCpuAffinity(device *d, unsigned words, unsigned long *set) {
    (void)d; memset(set, 0, words * sizeof *set); set[0] = 5; /* cores 0 and 2 */
    return OK;
}
int nvmlDeviceGetUtilizationRates(device *d, unsigned *rates) { rates[0] = set("STAND_IN_UTILIZATION", 42); rates[1] = 7; return d->mig ? NOT_SUPPORTED : OK; }
int nvmlDeviceGetPowerUsage(device *d, unsigned *milliwatts) { *milliwatts = 350500; return d->mig ? NOT_SUPPORTED : OK; }
int nvmlDeviceGetTotalEnergyConsumption(device *d, unsigned long long *mj) { *mj = 1000 * ++reads; return d->mig ? INVALID : OK; }
int nvmlDeviceGetClockInfo(device *d, int kind, unsigned *mhz) { *mhz = kind == 1 ? 1980 : 1; return d->mig ? NOT_SUPPORTED : OK; }
int nvmlDeviceGetTemperature(device *d, int sensor, unsigned *c) { (void)sensor; *c = 61; return d->mig ? NOT_SUPPORTED : OK; }
int nvmlDeviceGetCurrentClocksThrottleReasons(device *d, unsigned long long *bits) {
    *bits = set("STAND_IN_REASONS", 0x4 | 0x40); /* power cap, hardware thermal */
    return d->mig ? NOT_SUPPORTED : OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(device *d, unsigned *count, void *list) {
    struct { unsigned pid; unsigned long long memory; unsigned gi, ci; } *process = list;
    if (d->index || d->mig) { *count = 0; return OK; }
    if (!list) { *count = 2; return INSUFFICIENT; }
    process[0].pid = 11; process[0].memory = 2ULL << 30;
    process[1].pid = 12; process[1].memory = ~0ULL; /* NVML_VALUE_NOT_AVAILABLE */
    *count = 2;
    return OK;
}
