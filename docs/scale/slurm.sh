#!/bin/bash
# CLOC on 32 GPUs: 4 nodes of 8. Submit with `sbatch docs/scale/slurm.sh`; submit again to go on after an interruption.
#SBATCH --job-name=driftline
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=48
#SBATCH --time=08:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue

set -euo pipefail
STREAM=${STREAM:-/shared/streams/cloc}   # or s3://bucket/cloc, with the remote extra
RUN=${RUN:-/shared/runs/cloc-er}         # on a disk that all nodes see

export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export OMP_NUM_THREADS=1

if [ -e "$RUN/config.toml" ]; then
    COMMAND=(resume "$RUN")
else
    COMMAND=(run --stream "$STREAM" --out "$RUN" --model resnet50 --batch-size 256 --workers 4)
fi

srun torchrun --nnodes="$SLURM_NNODES" --nproc-per-node=8 --max-restarts=3 \
    --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$MASTER_ADDR:29500" \
    -m driftline "${COMMAND[@]}"
