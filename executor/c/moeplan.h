/* The executor for programs that are not C++: one MoE layer of a training job on one rank, run under a plan.
 *
 * A rank joins (moeplan_join_create), hands its address to all other ranks by whatever means the job has, and connects
 * (moeplan_world_create). A layer is made of the plain fields of a plan and its workload; a forward call gives a pass,
 * which is gone back through or freed. Weights and gradients stay in the caller's memory, which every call names.
 *
 * Every function that can fail returns a moeplan_status; moeplan_last_error then has its text, which names the field or
 * the rank, what was found and what was expected. A lost peer, a missed deadline, or a rank that passes another number of
 * tokens than the others spends the world: every later call answers it at once. Collective functions are called by all ranks of the world in the same order.
 *
 * Threads: any thread may call, and calls on one world run one after the other. In a child that was forked off after
 * the world was made every call is MOEPLAN_UNAVAILABLE; freeing does nothing there.
 *
 * Objects may be freed in any order; what still needs another keeps it. Null is freed without effect.
 *
 * A rank runs on the host or, of libmoeplan_gpu.so, on a card. Rows, weights and gradients are the host's memory, or the
 * card's: the library uses them where they lie. On a card a call is queued behind what the job has queued on its stream
 * (moeplan_world_set_stream), which then waits for it, and returns; the next call waits until the one before is done, and
 * answers what went wrong with it. Rows, weights and gradients have to last until the job's stream has passed the call.
 * Calls block where the host has to know sizes (capacity_factor 0, "PARM_S1", "ONCE_PER_NODE", parts of source batches)
 * and when work is recorded for the first time. While nobody calls, a thread of the world watches for peers that are lost.
 *
 * Rows are contiguous; elements are float, or uint16_t holding BF16 where bytes_per_element is 2. Shapes are written in
 * the letters of docs/design.md, 3: E experts, M model_dim, H hidden_dim; E' and H' are the rank's part of them
 * (moeplan_shard), S and S' the columns of the shared expert.
 */
#ifndef MOEPLAN_EXECUTOR_C_MOEPLAN_H_
#define MOEPLAN_EXECUTOR_C_MOEPLAN_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Counts up when a function or a struct changes; functions that are added leave it. A program asks moeplan_c_version
 * whether it was compiled against the header of the library that it found. */
#define MOEPLAN_C_VERSION 4
int32_t moeplan_c_version(void);

typedef int32_t moeplan_status;
enum {
  MOEPLAN_OK = 0,
  MOEPLAN_INVALID_INPUT = 1,     /* The caller can mend it. */
  MOEPLAN_NOT_FOUND = 2,
  MOEPLAN_INFEASIBLE = 3,        /* The layout rules the schedule out. */
  MOEPLAN_UNAVAILABLE = 4,       /* A peer or a library is not there. */
  MOEPLAN_DEADLINE_EXCEEDED = 5, /* A peer did not answer in time. */
  MOEPLAN_PEER_LOST = 6,         /* A rank died or closed its connection. */
  MOEPLAN_PERMISSION_DENIED = 7,
  MOEPLAN_DATA_LOSS = 8,
  MOEPLAN_UNIMPLEMENTED = 9,     /* Known, but not in this build. */
  MOEPLAN_CANCELLED = 10,
  MOEPLAN_INTERNAL = 11
};

/* The text of the last call of this thread that failed; valid until its next one. */
const char* moeplan_last_error(void);

/* ---- Ranks ---- */

typedef struct moeplan_join moeplan_join;
typedef struct moeplan_world moeplan_world;

typedef struct {
  int32_t rank, ranks, ranks_per_node;
  const char* host_address; /* Where the other ranks reach this machine: "10.0.0.7". */
  double deadline_s;        /* How long a collective may take. */
  const char* backend;      /* "host", as null, or "cuda": the card that is the calling thread's current device. */
} moeplan_place;

moeplan_status moeplan_join_create(const moeplan_place* place, moeplan_join** join);
/* Printable, without spaces; lives as long as the join. */
const char* moeplan_join_address(const moeplan_join* join);
void moeplan_join_free(moeplan_join* join);

/* Collective; blocks, 30 s for each peer at most. addresses[i] is rank i's. A join makes one world. */
moeplan_status moeplan_world_create(moeplan_join* join, const char* const* addresses, moeplan_world** world);
void moeplan_world_free(moeplan_world* world);

/* The stream that the job's own work is queued on, for the calls that follow: a cudaStream_t, null being CUDA's default
 * stream, as it is before the first call. Without effect on the host. */
moeplan_status moeplan_world_set_stream(moeplan_world* world, void* stream);

/* Where the forward passes that follow run, and the backward passes of these. 0, as it is before the first call: in line,
 * as said above. 1 and 2: on streams and communicators of their own, beside what is in line and on the other, such as two
 * micro-batches of which one computes while the rows of the other are on their way. A call of such a pass returns once its
 * work is queued, and rows, weights and gradients have to last until moeplan_pass_finish or moeplan_pass_free. The next
 * call on the same lane, of whatever pass, waits until the one before is done, and a call in line that blocks waits for
 * all lanes. The first forward pass of a layer on a lane blocks; so does every one whose sizes the host has to know, as
 * on a card (above). All ranks use the lanes alike. */
moeplan_status moeplan_world_set_lane(moeplan_world* world, int32_t lane);

/* ---- Layers ---- */

typedef struct moeplan_layer moeplan_layer;
typedef struct moeplan_pass moeplan_pass;

/* Fields and names are those of docs/contract.md: "TOP_K", "PARM_S2", "DIRECT", "NONE". What is 0 or null has the
 * contract's default. */
typedef struct {
  int32_t nodes, gpus_per_node; /* The cluster, whose ranks are those of the world. */

  int32_t batch, sequence_length, model_dim, hidden_dim, experts, top_k;
  double capacity_factor;
  int32_t bytes_per_element; /* 2 (BF16) or 4 (FP32). */
  int32_t expert_matrices;   /* 2 (GELU) or 3 (SwiGLU). */
  int32_t expert_bias;       /* 0 or 1. */
  int32_t shared_hidden_dim;
  const char *expert_kind, *gate;
  const char* router_score_function;
  int32_t router_raw_weights, router_correction_bias, router_bias, router_weighs_input; /* 0 or 1 each. */
  int32_t router_expert_groups, router_groups_per_token;
  double router_weight_scale;
  double swiglu_limit;
  double aux_loss_coefficient, z_loss_coefficient;
  double receive_factor;

  int32_t tensor_parallel, expert_parallel, expert_sharding_parallel, context_parallel, pipeline_parallel;
  const char* capacity_passing;
  int32_t allow_lossy; /* 0 or 1: whether the codecs below may be lossy. */

  const char *schedule, *all_to_all, *dispatch_codec, *combine_codec;
  int32_t chunks, partition_degree;
  int32_t overlapped_gather; /* 0 or 1. */
  int32_t communication_ctas;
  int32_t chunk_share_count, order_count;
  const double* chunk_shares;
  const char* const* order; /* Names of tasks. */
} moeplan_plan;

/* Collective; blocks. MOEPLAN_INVALID_INPUT on every rank, naming field and rank, where ranks have different plans. Both
 * passes can be run whatever phase the plan was made for. */
moeplan_status moeplan_layer_create(moeplan_world* world, const moeplan_plan* plan, moeplan_layer** layer);
void moeplan_layer_free(moeplan_layer* layer);

/* What the rank holds: experts [first_expert, first_expert + experts) of columns [first_hidden, first_hidden + hidden),
 * and columns of the shared expert. One rank of those that share an expert adds its last bias. */
typedef struct {
  int32_t first_expert, experts, first_hidden, hidden, adds_last_bias;
  int32_t shared_first_hidden, shared_hidden, shared_adds_last_bias;
  int32_t tokens;       /* The most of a call: B·L. */
  int32_t gates_slices; /* 1 where ranks of an MP group gate a slice of their batch each, and answer for that alone. */
} moeplan_shard;
void moeplan_layer_shard(const moeplan_layer* layer, moeplan_shard* shard);

/* The rank's part of the weights. Null where the layer has no such tensor, and the last biases where the rank does not
 * add them. Matrices of experts are elements of the layer on a card, and float on the host; all else is float. Floats are
 * rounded to BF16 by the caller where bytes_per_element is 2. */
typedef struct {
  const float* gate;                                  /* [E][M], alike on all ranks, as are the next two. */
  const float *gate_bias, *correction_bias;           /* [E] where the router has them. */
  const void *up, *gate_up, *down;                    /* [E'][M][H'], [E'][M][H'] of SwiGLU, [E'][H'][M] */
  const float *up_bias, *gate_up_bias, *down_bias;    /* [E'][H'], [E'][H'], [E'][M] */
  const void *shared_up, *shared_gate_up, *shared_down;
  const float *shared_up_bias, *shared_gate_up_bias, *shared_down_bias;
} moeplan_weights;

/* The same shapes in float; what a backward pass finds is added. On a card matrices may be elements of the layer instead,
 * which a backward pass overwrites. An expert whose rows come from several ranks, or in several pieces, has its gradient
 * rounded to elements once for each of them: take float then, unless the elements are float. Passes are fastest that
 * name the same memory as one of the four before: their work is a recorded graph then. */
typedef struct {
  float *gate, *gate_bias;
  void *up, *gate_up, *down;
  float *up_bias, *gate_up_bias, *down_bias;
  void *shared_up, *shared_gate_up, *shared_down;
  float *shared_up_bias, *shared_gate_up_bias, *shared_down_bias;
  int32_t matrices_are_elements; /* 0 or 1; 0 on the host. */
} moeplan_gradients;

/* ---- Passes: several may be under way at once, and go back in any order ---- */

/* Collective; blocks on the host. `input` has `tokens` rows of M elements, 1 to B·L, as many on every rank; `output` gets as many and
 * may be the same memory. Capacity is that of so many tokens. The weights' memory must last as long as the pass. */
moeplan_status moeplan_layer_forward(moeplan_layer* layer, int32_t tokens, const void* input, void* output,
                                     const moeplan_weights* weights, moeplan_pass** pass);

/* One source batch that comes in parts, each of its next tokens, in order, on every rank the same. Outputs, dropped pairs,
 * gradients (added up over the parts; those of the router's losses, too) and sums of statistics are those of the whole
 * source batch in one call, rounding aside: capacity is that of its `tokens`, and how many pairs have chosen each expert
 * goes from a part to the next. Parts are passes like others; where aux_loss_coefficient is not 0, none goes back before
 * the last part was forward. A part that fails leaves nothing to go on with. */
typedef struct moeplan_batch moeplan_batch;
moeplan_status moeplan_batch_create(moeplan_layer* layer, int32_t tokens, moeplan_batch** batch);
/* May come before its passes go back. */
void moeplan_batch_free(moeplan_batch* batch);

/* As moeplan_layer_forward, of the next `tokens` tokens of `batch`. MOEPLAN_INVALID_INPUT, naming the field, also where
 * the gate looks at the whole source batch (BATCH_PRIORITIZED, EXPERT_CHOICE) or slices have fixed shares of the slots
 * (PARM_S1 with capacity_passing "PADDED"). */
moeplan_status moeplan_batch_forward(moeplan_batch* batch, int32_t tokens, const void* input, void* output,
                                     const moeplan_weights* weights, moeplan_pass** pass);

/* Collective; blocks on the host; once for each pass. Adds this rank's part of the weight gradients, and the gate's of its own source
 * batch, whole on every rank of the MP group. The router's losses, times their coefficients, are part of the loss. */
moeplan_status moeplan_pass_backward(moeplan_pass* pass, const void* output_gradient, void* input_gradient,
                                     const moeplan_gradients* gradients);
/* The same in two halves: dX and the gate's gradient (added to `gate_gradient`, [E][M], and to `gate_bias_gradient`, [E],
 * null where the router has no bias), and then dW, which exchanges nothing and may come after other passes. */
moeplan_status moeplan_pass_backward_of_input(moeplan_pass* pass, const void* output_gradient, void* input_gradient,
                                              float* gate_gradient, float* gate_bias_gradient);
moeplan_status moeplan_pass_add_weight_gradients(moeplan_pass* pass, const moeplan_gradients* gradients);

/* Of a pass on lane 1 or 2: what its last call has queued is done when this returns or, on a card, before what is queued
 * on the job's stream from now on. Without effect on a pass in line. */
moeplan_status moeplan_pass_finish(moeplan_pass* pass);

/* Of a backward pass on lane 1 or 2 of a rank on the host, before its moeplan_pass_finish: blocks until the experts have
 * computed the gradients of their inputs, so that the job can compute beside the exchange that brings these back and not
 * beside the experts. Without effect on a pass in line, and on a card. */
moeplan_status moeplan_pass_await_experts(moeplan_pass* pass);

/* What the router did with the tokens that this rank answers for. Arrays are the host's and have room for E; null: not
 * wanted. Blocks until the forward pass is done. */
typedef struct {
  int64_t tokens;
  int64_t *pairs, *kept;    /* By expert: (token, choice) pairs before drops, and those that got a slot. */
  double* probability_sum;  /* By expert: sums of the softmax over all experts. */
  double squared_log_sum_exp_sum, entropy_sum;
  double load_balance_loss, z_loss; /* The losses of those tokens, without coefficients. */
} moeplan_statistics;
moeplan_status moeplan_pass_statistics(moeplan_pass* pass, moeplan_statistics* statistics);

/* A task as it ran, in seconds on a clock that the ranks of a machine share. Names are those of the contract. */
typedef struct {
  const char *task, *kind, *stream;
  int32_t chunk;
  double start_s, end_s;
} moeplan_task;
/* The tasks of "FORWARD", "BACKWARD" or, of both passes, "TRAINING"; none before they ran. Valid until the next timeline
 * of the pass, or its end. Blocks until the pass is done. */
moeplan_status moeplan_pass_timeline(moeplan_pass* pass, const char* phase, const moeplan_task** tasks, int32_t* count);

/* Leaves its buffers to later passes. Of a pass on lane 1 or 2: as after moeplan_pass_finish. */
void moeplan_pass_free(moeplan_pass* pass);

#ifdef __cplusplus
}
#endif

#endif /* MOEPLAN_EXECUTOR_C_MOEPLAN_H_ */
