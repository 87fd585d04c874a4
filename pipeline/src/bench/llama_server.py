"""llama.cpp's own server with the sizes that it is compared at: MODEL PORT THREADS CONTEXT SLOTS."""

import sys
import time

import xllamacpp

model, port, threads, context, slots = sys.argv[1], *map(int, sys.argv[2:6])
params = xllamacpp.CommonParams()
params.model.path = model
params.n_ctx = context
params.n_parallel = slots
params.kv_unified = True
params.cpuparams.n_threads = threads
params.cpuparams_batch.n_threads = threads
params.hostnames = ["127.0.0.1"]
params.port = port
params.endpoint_metrics = True
params.warmup = True
server = xllamacpp.Server(params)
while True:
    time.sleep(3600)
