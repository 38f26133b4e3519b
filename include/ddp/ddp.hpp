// All of ddp's runtime in one include. The reading order for a newcomer is the order below.
#pragma once

#include <ddp/version.hpp>
// First: how a worker starts.
#include <ddp/process_group.hpp>
#include <ddp/run_worker.hpp>
// Then: how it trains.
#include <ddp/checkpoint.hpp>
#include <ddp/data_loader.hpp>
#include <ddp/data_parallel.hpp>
#include <ddp/distributed_data_parallel.hpp>
#include <ddp/distributed_sampler.hpp>
#include <ddp/random_sampler.hpp>
#include <ddp/state_dict.hpp>
#include <ddp/sync_batch_norm.hpp>
// Where it is started from a program of its own.
#include <ddp/launch.hpp>
// Underneath.
#include <ddp/backend.hpp>
#include <ddp/call_site.hpp>
#include <ddp/collective_options.hpp>
#include <ddp/device.hpp>
#include <ddp/dtype.hpp>
#include <ddp/error.hpp>
#include <ddp/half.hpp>
#include <ddp/init_process_group.hpp>
#include <ddp/memory.hpp>
#include <ddp/parameter.hpp>
#include <ddp/reduce_op.hpp>
#include <ddp/reducer.hpp>
#include <ddp/shape.hpp>
#include <ddp/shard.hpp>
#include <ddp/store.hpp>
#include <ddp/stream.hpp>
#include <ddp/tensor.hpp>
#include <ddp/tensor_functions.hpp>
#include <ddp/tensor_view.hpp>
#include <ddp/work.hpp>
#include <ddp/worker_env.hpp>
