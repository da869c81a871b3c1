# The sampler of training runs and the endpoint of re-entered models: vLLM in an environment of its own, since its pins of
# torch and transformers can't live beside ours. Spoken to over HTTP alone (training/vllm_sampler.py).
#
#   docker build -f docker/vllm.Dockerfile -t agent-arena-vllm docker
#   docker run --gpus all --ipc=host -p 127.0.0.1:8000:8000 -v "$PWD/runs:/runs" agent-arena-vllm \
#       /runs/entry/model --served-model-name NAME@HASH
#
# A recipe then says `sampler = "http://127.0.0.1:8000/v1"` and `sampler_model = "NAME@HASH"`. Adapters are read by the
# server: mount their folder under the path the trainer sees. The API has no key here: publish it on loopback only.
ARG VLLM_VERSION=0.33.0
FROM vllm/vllm-openai:v${VLLM_VERSION}

# adapters are loaded while it runs, each version under a name of its own
ENV VLLM_ALLOW_RUNTIME_LORA_UPDATING=True \
    HF_HUB_OFFLINE=1

# 32,768: rollouts of 25 turns outgrew 16,384 (paper, B.6). raw_logprobs at temperature 1 is what a trainer computes.
ENTRYPOINT ["python3", "-m", "vllm.entrypoints.openai.api_server", \
    "--host", "0.0.0.0", "--port", "8000", \
    "--max-model-len", "32768", \
    "--logprobs-mode", "raw_logprobs", \
    "--enable-lora", "--max-lora-rank", "64", \
    "--generation-config", "vllm"]
