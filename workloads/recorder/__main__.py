"""The writing process: `python -P -m workloads.recorder`, started by `channel`, not by users."""

from workloads.recorder.writer import main

if __name__ == "__main__":
    main()
