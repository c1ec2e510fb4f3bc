#!/usr/bin/env python3
"""One node that answers as SLURM's sbatch, srun, sacct and scancel, whichever name it is called by.

It runs the tasks of the submitted script at once. The script's options are kept in ``options-ID`` of the folder that
``SLURM_STAND_IN`` names.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

folder = Path(os.environ["SLURM_STAND_IN"])
called, words = Path(sys.argv[0]).name, sys.argv[1:]

if called == "sbatch":
    script = Path(words[-1])
    options = re.findall(r"^#SBATCH --([\w-]+)(?:=(.*))?$", script.read_text(), re.MULTILINE)
    asked = dict(options)
    if asked.get("partition") == "none":
        sys.exit("sbatch: error: Batch job submission failed: Invalid partition name specified")
    number = str(1 + len(list(folder.glob("options-*"))))
    (folder / f"options-{number}").write_text("\n".join("=".join(filter(None, each)) for each in options))
    tasks = asked["ntasks-per-node"]
    place = {"SLURM_JOB_ID": number, "SLURM_NTASKS": tasks, "SLURM_NTASKS_PER_NODE": tasks, "SLURM_NNODES": "1"}
    place |= {"SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "127.0.0.1", "SLURM_NODEID": "0"}
    # Whoever submits waits until nothing holds sbatch's output.
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    running = subprocess.Popen(["bash", script], env={**os.environ, **place}, **quiet)
    (folder / f"group-{number}").write_text(str(running.pid))
    sys.stdout.write(f"Submitted batch job {number}\n")
elif called == "srun":
    files, number = {}, os.environ["SLURM_JOB_ID"]
    while words[0].startswith("-"):
        name = words.pop(0)
        if name in ("--output", "--error"):
            files[name] = words.pop(0)
    tasks = []
    for rank in range(int(os.environ["SLURM_NTASKS"])):
        own = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)}
        out, err = (files[each].replace("%j", number).replace("%t", str(rank)) for each in ("--output", "--error"))
        with Path(out).open("w") as output, Path(err).open("w") as errors:
            tasks.append(subprocess.Popen(words, env={**os.environ, **own}, stdout=output, stderr=errors))
    sys.exit(max(abs(each.wait()) for each in tasks))
elif called == "sacct":
    sys.stdout.write("JobID|State|NodeList\n")
    for path in folder.glob("group-*"):
        over = not Path(f"/proc/{path.read_text()}").exists()
        sys.stdout.write(f"{path.name.removeprefix('group-')}|{'COMPLETED' if over else 'RUNNING'}|here\n")
elif called == "scancel":
    os.killpg(int((folder / f"group-{words[0]}").read_text()), signal.SIGTERM)
