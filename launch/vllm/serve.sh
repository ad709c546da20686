#!/usr/bin/env bash
# A vLLM server that a run samples from, or whose model teaches. On the machine with its GPUs:
#   launch/vllm/serve.sh MODEL_FOLDER                          rollout=vllm rollout.url=http://HOST:8000
#   LORA_RANK=16 launch/vllm/serve.sh BASE_FOLDER              for a student with policy.lora.rank=16
#   TEACHER=1 PORT=8001 launch/vllm/serve.sh TEACHER_FOLDER    teacher=vllm_server teacher.url=...
# Environment: PORT (8000), HOST (127.0.0.1: the weight endpoints have no password, so open it to the
# cluster's own network only), GPUS (tensor parallel size, 1), MAX_LEN (4096: rollout.max_context_tokens
# or more), DTYPE (auto), TOPK (20: largest topk of a teacher's terms), PYTHON (python3 of the environment
# with vLLM). Further words go to vLLM.
set -euo pipefail
model=${1:?folder of the model}
shift
python=${PYTHON:-python3}
more=()
if [ -z "${TEACHER:-}" ]; then
  export VLLM_SERVER_DEV_MODE=1             # lets the run replace the weights
  if [ -n "${LORA_RANK:-}" ]; then
    export VLLM_ALLOW_RUNTIME_LORA_UPDATING=1  # lets the run load adapters
    # vLLM takes these sizes only: the smallest that fits.
    for size in 8 16 32 64 128 256 320 512; do
      [ "$size" -ge "$LORA_RANK" ] && break
    done
    more+=(--enable-lora --max-lora-rank "$size" --max-loras 1 --max-cpu-loras 2)
  fi
fi
exec "$python" -m vllm.entrypoints.openai.api_server \
  --model "$model" --host "${HOST:-127.0.0.1}" --port "${PORT:-8000}" \
  --tensor-parallel-size "${GPUS:-1}" --dtype "${DTYPE:-auto}" --max-model-len "${MAX_LEN:-4096}" \
  --generation-config vllm --logprobs-mode processed_logprobs --max-logprobs "${TOPK:-20}" \
  "${more[@]}" "$@"
