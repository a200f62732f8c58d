"""The program ``python -m assay.worker``: `worker.main`, imported while no garbage is collected.

Nearly all that is imported lives as long as the process, so collections would find nothing
(`build.leave_imports_out_of_collections` begins them).
"""

import gc

if __name__ == "__main__":
    gc.disable()
    from assay.worker.main import main
    from assay.worker.processes.ends import leave

    leave(main())
