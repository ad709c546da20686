#!/usr/bin/env bash
# One run on several machines that share run.root. On every machine, with its own NODE_RANK from 0:
#   NODES=2 NODE_RANK=0 HEAD=10.0.0.1 launch/local/torchrun.sh method=gear zero=zero2
# Environment: NODES, NODE_RANK, HEAD (address of machine 0), PORT (29400), PROCESSES per machine
# (default: its GPUs, else 1), PYTHON (python3). Where a host name leads to the wrong network, name the
# right one: GLOO_SOCKET_IFNAME=eth0 (and NCCL_SOCKET_IFNAME with GPUs).
set -euo pipefail
: "${NODES:?number of machines}" "${NODE_RANK:?number of this machine, from 0}" "${HEAD:?address of machine 0}"
python=${PYTHON:-python3}
gpus=$(nvidia-smi --list-gpus 2>/dev/null | wc -l || true)
exec "$python" -m torch.distributed.run \
  --nnodes "$NODES" --node_rank "$NODE_RANK" \
  --master_addr "$HEAD" --master_port "${PORT:-29400}" \
  --nproc_per_node "${PROCESSES:-$((gpus > 0 ? gpus : 1))}" \
  -m selfdistill_cli train "$@"
