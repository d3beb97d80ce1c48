/* The C interface from C99: four ranks as threads of this program, against plain loops. Prints what differs, and exits
 * with 1 then. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "executor/c/moeplan.h"

enum { RANKS = 4, TOKENS = 6, M = 5, H = 3, E = 4, K = 2 };

static int failures = 0;
static pthread_mutex_t failures_mutex = PTHREAD_MUTEX_INITIALIZER;

#define EXPECT(condition)                                                             \
  do {                                                                                \
    if (!(condition)) {                                                               \
      pthread_mutex_lock(&failures_mutex);                                            \
      ++failures;                                                                     \
      printf("%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, moeplan_last_error()); \
      pthread_mutex_unlock(&failures_mutex);                                          \
    }                                                                                 \
  } while (0)
#define EXPECT_OK(call) EXPECT((call) == MOEPLAN_OK)

static int contains(const char* text, const char* part) { return strstr(text, part) != NULL; }

static float value(int tensor, int index) { return (float)sin(1.0 + 7.3 * tensor + 1.7 * index) * 0.8f; }

static void fill(float* to, int tensor, int first, int count) {
  for (int i = 0; i < count; ++i) to[i] = value(tensor, first + i);
}

/* What the experts give of a token, each times its weight. */
static void plain_experts(const float* x, const double* weights, double* y) {
  for (int m = 0; m < M; ++m) y[m] = 0;
  for (int e = 0; e < E; ++e) {
    for (int h = 0; h < H; ++h) {
      double sum = 0;
      for (int m = 0; m < M; ++m) sum += (double)x[m] * value(1, (e * M + m) * H + h);
      const double hidden = 0.5 * sum * (1 + erf(sum / sqrt(2.0)));
      for (int m = 0; m < M; ++m) y[m] += weights[e] * hidden * value(2, (e * H + h) * M + m);
    }
  }
}

/* The whole layer: what a token gives, with every pair kept. */
static void plain_row(const float* x, double* y) {
  double probability[E], all = 0;
  for (int e = 0; e < E; ++e) {
    double logit = 0;
    for (int m = 0; m < M; ++m) logit += (double)value(0, e * M + m) * x[m];
    all += probability[e] = exp(logit);
  }
  int chosen[K];
  double weight_sum = 0;
  for (int k = 0; k < K; ++k) {
    chosen[k] = -1;
    for (int e = 0; e < E; ++e) {
      if (k > 0 && e == chosen[0]) continue;
      if (chosen[k] < 0 || probability[e] > probability[chosen[k]]) chosen[k] = e;
    }
    weight_sum += probability[chosen[k]] / all;
  }
  double weights[E] = {0};
  for (int k = 0; k < K; ++k) weights[chosen[k]] = probability[chosen[k]] / all / weight_sum;
  plain_experts(x, weights, y);
}

static char addresses[RANKS][4096];
static pthread_barrier_t barrier;

static moeplan_plan example_plan(void) {
  const moeplan_plan plan = {.nodes = 2,
                             .gpus_per_node = 2,
                             .batch = 1,
                             .sequence_length = TOKENS,
                             .model_dim = M,
                             .hidden_dim = H,
                             .experts = E,
                             .top_k = K,
                             .capacity_factor = (double)E / K,
                             .bytes_per_element = 4,
                             .expert_parallel = RANKS,
                             .schedule = "PIPELINE",
                             .partition_degree = 2};
  return plan;
}

static void check_pass(moeplan_layer* layer, const moeplan_weights* weights, int tensor, int tokens) {
  float x[TOKENS * M], y[TOKENS * M], dy[TOKENS * M], dx[TOKENS * M], dx_halves[TOKENS * M];
  float gate[E * M] = {0}, up[M * H] = {0}, down[H * M] = {0};
  float gate_halves[E * M] = {0}, up_halves[M * H] = {0}, down_halves[H * M] = {0};
  const moeplan_gradients gradients = {.gate = gate, .up = up, .down = down};
  const moeplan_gradients halves = {.gate = gate_halves, .up = up_halves, .down = down_halves};
  moeplan_pass *pass = NULL, *other = NULL;
  fill(x, tensor, 0, tokens * M);
  fill(dy, tensor + 1, 0, tokens * M);
  EXPECT_OK(moeplan_layer_forward(layer, tokens, x, y, weights, &pass));
  EXPECT_OK(moeplan_layer_forward(layer, tokens, x, dx, weights, &other));
  for (int token = 0; token < tokens; ++token) {
    double expected[M];
    plain_row(x + token * M, expected);
    for (int m = 0; m < M; ++m) EXPECT(fabs(y[token * M + m] - expected[m]) < 1e-5);
  }
  EXPECT(memcmp(y, dx, (size_t)tokens * M * sizeof(float)) == 0);

  int64_t pairs[E], kept[E], all = 0;
  moeplan_statistics statistics = {.pairs = pairs, .kept = kept};
  EXPECT_OK(moeplan_pass_statistics(pass, &statistics));
  for (int e = 0; e < E; ++e) {
    all += pairs[e];
    EXPECT(kept[e] == pairs[e]);
  }
  EXPECT(statistics.tokens == tokens && all == (int64_t)K * tokens && statistics.load_balance_loss > 0);

  EXPECT_OK(moeplan_pass_backward(pass, dy, dx, &gradients));
  EXPECT_OK(moeplan_pass_backward_of_input(other, dy, dx_halves, gate_halves, NULL));
  EXPECT(up_halves[0] == 0);
  EXPECT_OK(moeplan_pass_add_weight_gradients(other, &halves));
  EXPECT(memcmp(dx, dx_halves, (size_t)tokens * M * sizeof(float)) == 0);
  EXPECT(memcmp(gate, gate_halves, sizeof gate) == 0);
  EXPECT(memcmp(up, up_halves, sizeof up) == 0 && memcmp(down, down_halves, sizeof down) == 0);

  const moeplan_task* tasks = NULL;
  int32_t count = 0, experts = 0;
  EXPECT_OK(moeplan_pass_timeline(pass, "TRAINING", &tasks, &count));
  for (int32_t i = 0; i < count; ++i) {
    experts += strcmp(tasks[i].kind, "EXPERT") == 0 && strcmp(tasks[i].stream, "COMPUTE") == 0;
    EXPECT(tasks[i].start_s <= tasks[i].end_s);
  }
  EXPECT(experts >= 4); /* Two chunks, there and back. */

  EXPECT(moeplan_pass_backward(pass, dy, dx, &gradients) == MOEPLAN_INVALID_INPUT);
  EXPECT(contains(moeplan_last_error(), "no Forward to go back through"));
  moeplan_pass_free(pass);
  moeplan_pass_free(other);
}

/* The sum of an output's products with a gradient, and the output. */
static double forward_product(moeplan_layer* layer, const moeplan_weights* weights, const float* x, const float* dy,
                              float* y, moeplan_pass** pass) {
  double sum = 0;
  EXPECT_OK(moeplan_layer_forward(layer, TOKENS, x, y, weights, pass));
  for (int i = 0; i < TOKENS * M; ++i) sum += (double)dy[i] * y[i];
  return sum;
}

/* Sigmoids with biases: corrections of choices let every token choose experts 1 and 3, and weights have none of them. */
static void check_router(moeplan_world* world, const moeplan_weights* given, int rank) {
  moeplan_plan plan = example_plan();
  plan.router_score_function = "SIGMOID";
  plan.router_raw_weights = plan.router_correction_bias = plan.router_bias = 1;
  plan.router_weight_scale = 2;
  moeplan_layer* layer = NULL;
  moeplan_pass *pass = NULL, *halves = NULL, *moved = NULL;
  float gate_bias[E] = {0.5f, -0.25f, 0, 1}, correction_bias[E] = {0, 10, 0, 20};
  float x[TOKENS * M], y[TOKENS * M], dy[TOKENS * M], dx[TOKENS * M], other[TOKENS * M];
  float gate[E * M] = {0}, bias[E] = {0}, up[M * H] = {0}, down[H * M] = {0}, gate_halves[E * M] = {0};
  float bias_halves[E] = {0};
  moeplan_gradients gradients = {.gate = gate, .up = up, .down = down};
  moeplan_weights weights = *given;
  fill(x, 90 + rank, 0, TOKENS * M);
  fill(dy, 100 + rank, 0, TOKENS * M);
  EXPECT_OK(moeplan_layer_create(world, &plan, &layer));
  weights.gate_bias = gate_bias;
  EXPECT(moeplan_layer_forward(layer, TOKENS, x, y, &weights, &pass) == MOEPLAN_INVALID_INPUT);
  EXPECT(contains(moeplan_last_error(), "weights: correction_bias: found null, expected 4 values"));
  weights.correction_bias = correction_bias;
  forward_product(layer, &weights, x, dy, y, &pass);
  forward_product(layer, &weights, x, dy, other, &halves);
  for (int token = 0; token < TOKENS; ++token) {
    double expected[M], of_experts[E] = {0};
    for (int e = 1; e < E; e += 2) {
      double logit = gate_bias[e];
      for (int m = 0; m < M; ++m) logit += (double)value(0, e * M + m) * x[token * M + m];
      of_experts[e] = 2 / (1 + exp(-logit));
    }
    plain_experts(x + token * M, of_experts, expected);
    for (int m = 0; m < M; ++m) EXPECT(fabs(y[token * M + m] - expected[m]) < 1e-5);
  }

  EXPECT(moeplan_pass_backward(pass, dy, dx, &gradients) == MOEPLAN_INVALID_INPUT);
  EXPECT(contains(moeplan_last_error(), "gradients.gate_bias: found null, expected 4 values"));
  gradients.gate_bias = bias;
  EXPECT_OK(moeplan_pass_backward(pass, dy, dx, &gradients));
  EXPECT_OK(moeplan_pass_backward_of_input(halves, dy, other, gate_halves, bias_halves));
  EXPECT(memcmp(gate, gate_halves, sizeof gate) == 0 && memcmp(bias, bias_halves, sizeof bias) == 0);
  for (int e = 0; e < E; ++e) {
    double products[2];
    const float before = gate_bias[e], step = 1.0f / 64;
    for (int side = 0; side < 2; ++side) {
      gate_bias[e] = before + (side == 0 ? step : -step);
      products[side] = forward_product(layer, &weights, x, dy, y, &moved);
      moeplan_pass_free(moved);
    }
    gate_bias[e] = before;
    EXPECT(fabs((products[0] - products[1]) / (2 * step) - bias[e]) < 2e-3);
  }
  moeplan_pass_free(pass);
  moeplan_pass_free(halves);
  moeplan_layer_free(layer);
}

/* A source batch in two parts is the whole: the same pairs are dropped, and gradients add up to its. */
static void check_parts(moeplan_world* world, const moeplan_weights* weights, int rank) {
  enum { FIRST = 4 };
  moeplan_plan plan = example_plan();
  plan.capacity_factor = 0.4; /* Two slots of each expert, of four, for twelve pairs. */
  plan.aux_loss_coefficient = 1;
  moeplan_layer* layer = NULL;
  moeplan_batch* batch = NULL;
  moeplan_pass *whole = NULL, *first = NULL, *last = NULL, *none = NULL;
  float x[TOKENS * M], y[TOKENS * M], dy[TOKENS * M], dx[TOKENS * M], y_parts[TOKENS * M], dx_parts[TOKENS * M];
  float gate[E * M] = {0}, up[M * H] = {0}, down[H * M] = {0};
  float gate_parts[E * M] = {0}, up_parts[M * H] = {0}, down_parts[H * M] = {0};
  const moeplan_gradients gradients = {.gate = gate, .up = up, .down = down};
  const moeplan_gradients of_parts = {.gate = gate_parts, .up = up_parts, .down = down_parts};
  fill(x, 70 + rank, 0, TOKENS * M);
  fill(dy, 80 + rank, 0, TOKENS * M);
  EXPECT_OK(moeplan_layer_create(world, &plan, &layer));
  EXPECT_OK(moeplan_layer_forward(layer, TOKENS, x, y, weights, &whole));
  EXPECT_OK(moeplan_batch_create(layer, TOKENS, &batch));
  EXPECT_OK(moeplan_batch_forward(batch, FIRST, x, y_parts, weights, &first));
  EXPECT(moeplan_batch_forward(batch, TOKENS, x, y_parts, weights, &none) == MOEPLAN_INVALID_INPUT);
  EXPECT(contains(moeplan_last_error(), "tokens: found 6 of a part, expected 1 to 2"));
  EXPECT(moeplan_pass_backward(first, dy, dx_parts, &of_parts) == MOEPLAN_INVALID_INPUT);
  EXPECT(contains(moeplan_last_error(), "found 4 of the source batch's 6 when a part goes back"));
  EXPECT_OK(moeplan_batch_forward(batch, TOKENS - FIRST, x + FIRST * M, y_parts + FIRST * M, weights, &last));
  moeplan_batch_free(batch);

  int64_t kept[E], kept_first[E], kept_last[E], dropped = 2 * TOKENS;
  moeplan_statistics statistics = {.kept = kept}, of_first = {.kept = kept_first}, of_last = {.kept = kept_last};
  EXPECT_OK(moeplan_pass_statistics(whole, &statistics));
  EXPECT_OK(moeplan_pass_statistics(first, &of_first));
  EXPECT_OK(moeplan_pass_statistics(last, &of_last));
  for (int e = 0; e < E; ++e) {
    EXPECT(kept[e] == kept_first[e] + kept_last[e]);
    dropped -= kept[e];
  }
  EXPECT(dropped > 0);

  EXPECT_OK(moeplan_pass_backward(whole, dy, dx, &gradients));
  EXPECT_OK(moeplan_pass_backward(first, dy, dx_parts, &of_parts));
  EXPECT_OK(moeplan_pass_backward(last, dy + FIRST * M, dx_parts + FIRST * M, &of_parts));
  for (int i = 0; i < TOKENS * M; ++i) EXPECT(fabs(y[i] - y_parts[i]) < 1e-5 && fabs(dx[i] - dx_parts[i]) < 1e-5);
  for (int i = 0; i < E * M; ++i) EXPECT(fabs(gate[i] - gate_parts[i]) < 1e-5);
  for (int i = 0; i < M * H; ++i) EXPECT(fabs(up[i] - up_parts[i]) < 1e-5 && fabs(down[i] - down_parts[i]) < 1e-5);
  moeplan_pass_free(whole);
  moeplan_pass_free(first);
  moeplan_pass_free(last);
  moeplan_layer_free(layer);
}

/* Two batches at once, each on a lane, are those in line. */
static void check_lanes(moeplan_world* world, moeplan_layer* layer, const moeplan_weights* weights, int rank) {
  float x[2][TOKENS * M], y[2][TOKENS * M], dy[TOKENS * M], dx[2][TOKENS * M], expected[TOKENS * M];
  float expected_dx[TOKENS * M], gate[2][E * M] = {{0}}, up[2][M * H] = {{0}}, down[2][H * M] = {{0}};
  float expected_gate[E * M] = {0}, expected_up[M * H] = {0}, expected_down[H * M] = {0};
  moeplan_pass* passes[2] = {NULL, NULL};
  moeplan_pass* in_line = NULL;
  fill(dy, 90 + rank, 0, TOKENS * M);
  for (int i = 0; i < 2; ++i) { /* The first pass of a lane blocks. */
    EXPECT_OK(moeplan_world_set_lane(world, i + 1));
    EXPECT_OK(moeplan_layer_forward(layer, TOKENS, dy, y[i], weights, &passes[i]));
    moeplan_pass_free(passes[i]);
  }
  /* Rank 0 begins both before any other rank begins one, so neither call may wait for its rows. */
  if (rank > 0) pthread_barrier_wait(&barrier);
  for (int i = 0; i < 2; ++i) {
    fill(x[i], 70 + 4 * i + rank, 0, TOKENS * M);
    EXPECT_OK(moeplan_world_set_lane(world, i + 1));
    EXPECT_OK(moeplan_layer_forward(layer, TOKENS, x[i], y[i], weights, &passes[i]));
  }
  EXPECT_OK(moeplan_world_set_lane(world, 0));
  if (rank == 0) pthread_barrier_wait(&barrier);
  for (int i = 0; i < 2; ++i) {
    const moeplan_gradients gradients = {.gate = gate[i], .up = up[i], .down = down[i]};
    EXPECT_OK(moeplan_pass_finish(passes[i]));
    EXPECT_OK(moeplan_pass_backward(passes[i], dy, dx[i], &gradients));
    EXPECT_OK(moeplan_pass_await_experts(passes[i]));
  }
  for (int i = 1; i >= 0; --i) {
    const moeplan_gradients gradients = {.gate = expected_gate, .up = expected_up, .down = expected_down};
    EXPECT_OK(moeplan_pass_finish(passes[i]));
    moeplan_pass_free(passes[i]);
    memset(expected_gate, 0, sizeof expected_gate);
    memset(expected_up, 0, sizeof expected_up);
    memset(expected_down, 0, sizeof expected_down);
    EXPECT_OK(moeplan_layer_forward(layer, TOKENS, x[i], expected, weights, &in_line));
    EXPECT_OK(moeplan_pass_backward(in_line, dy, expected_dx, &gradients));
    EXPECT_OK(moeplan_pass_await_experts(in_line));
    EXPECT_OK(moeplan_pass_finish(in_line));
    moeplan_pass_free(in_line);
    EXPECT(memcmp(y[i], expected, sizeof expected) == 0);
    EXPECT(memcmp(dx[i], expected_dx, sizeof expected_dx) == 0);
    EXPECT(memcmp(gate[i], expected_gate, sizeof expected_gate) == 0);
    EXPECT(memcmp(up[i], expected_up, sizeof expected_up) == 0);
    EXPECT(memcmp(down[i], expected_down, sizeof expected_down) == 0);
  }
  EXPECT(moeplan_world_set_lane(world, 3) == MOEPLAN_INVALID_INPUT);
  EXPECT(contains(moeplan_last_error(), "lane: found 3, expected 0 (in line), 1 or 2"));
  EXPECT(moeplan_world_set_lane(NULL, 0) == MOEPLAN_INVALID_INPUT);
  EXPECT(moeplan_pass_finish(NULL) == MOEPLAN_INVALID_INPUT);
  EXPECT(moeplan_pass_await_experts(NULL) == MOEPLAN_INVALID_INPUT);
}

static void check_errors(moeplan_world* world, moeplan_layer* layer, const moeplan_weights* weights, int rank) {
  float rows[(TOKENS + 1) * M] = {0};
  moeplan_pass* pass = NULL;
  EXPECT(moeplan_layer_forward(layer, TOKENS + 1, rows, rows, weights, &pass) == MOEPLAN_INVALID_INPUT);
  EXPECT(contains(moeplan_last_error(), "tokens: found 7, expected 1 to 6"));
  moeplan_weights wrong = *weights;
  wrong.down = NULL;
  EXPECT(moeplan_layer_forward(layer, TOKENS, rows, rows, &wrong, &pass) == MOEPLAN_INVALID_INPUT);
  EXPECT(contains(moeplan_last_error(), "weights: down: found null, expected 15 values"));
  wrong = *weights;
  wrong.gate_up = rows;
  EXPECT(moeplan_layer_forward(layer, TOKENS, rows, rows, &wrong, &pass) == MOEPLAN_INVALID_INPUT);
  EXPECT(contains(moeplan_last_error(), "weights: gate_up: found memory, expected null"));

  moeplan_plan plan = example_plan();
  moeplan_layer* other = NULL;
  plan.schedule = "PARM_S3";
  EXPECT(moeplan_layer_create(world, &plan, &other) == MOEPLAN_INVALID_INPUT);
  EXPECT(contains(moeplan_last_error(), "best.schedule: found PARM_S3, expected one of BASELINE, "));
  plan = example_plan();
  if (rank == 3) plan.hidden_dim = 8;
  EXPECT(moeplan_layer_create(world, &plan, &other) == MOEPLAN_INVALID_INPUT);
  EXPECT(contains(moeplan_last_error(), "layer.hiddenDim: found 8 on rank 3, expected 3, as on rank 0"));
  plan = example_plan();
  plan.nodes = 4;
  EXPECT(moeplan_layer_create(world, &plan, &other) == MOEPLAN_INVALID_INPUT);
  EXPECT(contains(moeplan_last_error(), "the job has 4 ranks"));
}

static void* run_rank(void* argument) {
  const int rank = *(const int*)argument;
  const moeplan_place place = {
      .rank = rank, .ranks = RANKS, .ranks_per_node = 2, .host_address = "127.0.0.1", .deadline_s = 20};
  moeplan_join* join = NULL;
  moeplan_world* world = NULL;
  moeplan_layer* layer = NULL;
  EXPECT_OK(moeplan_join_create(&place, &join));
  snprintf(addresses[rank], sizeof addresses[rank], "%s", moeplan_join_address(join));
  pthread_barrier_wait(&barrier);
  const char* all[RANKS];
  for (int i = 0; i < RANKS; ++i) all[i] = addresses[i];
  EXPECT_OK(moeplan_world_create(join, all, &world));
  moeplan_join_free(join);

  const moeplan_plan plan = example_plan();
  EXPECT_OK(moeplan_layer_create(world, &plan, &layer));
  if (layer == NULL) return NULL;
  moeplan_shard shard;
  moeplan_layer_shard(layer, &shard);
  EXPECT(shard.first_expert == rank && shard.experts == 1 && shard.hidden == H && shard.tokens == TOKENS);
  float gate[E * M], up[M * H], down[H * M];
  fill(gate, 0, 0, E * M);
  fill(up, 1, rank * M * H, M * H);
  fill(down, 2, rank * H * M, H * M);
  const moeplan_weights weights = {.gate = gate, .up = up, .down = down};
  check_pass(layer, &weights, 10 + 2 * rank, TOKENS);
  check_pass(layer, &weights, 30 + 2 * rank, 2);
  check_errors(world, layer, &weights, rank);
  check_parts(world, &weights, rank);
  check_lanes(world, layer, &weights, rank);
  check_router(world, &weights, rank);
  check_pass(layer, &weights, 50 + 2 * rank, TOKENS);

  /* In any order: what needs another keeps it. */
  float rows[TOKENS * M] = {0};
  moeplan_pass* last = NULL;
  EXPECT_OK(moeplan_layer_forward(layer, TOKENS, rows, rows, &weights, &last));
  moeplan_world_free(world);
  moeplan_layer_free(layer);
  const moeplan_task* tasks = NULL;
  int32_t count = 0;
  EXPECT_OK(moeplan_pass_timeline(last, "FORWARD", &tasks, &count));
  EXPECT(count > 0);
  pthread_barrier_wait(&barrier);
  moeplan_pass_free(last);
  return NULL;
}

/* A forked child is refused, and frees without waiting for threads that it does not have. */
static void check_fork(void) {
  const moeplan_place place = {.rank = 0, .ranks = 1, .ranks_per_node = 1, .host_address = "127.0.0.1", .deadline_s = 5};
  moeplan_join* join = NULL;
  moeplan_world* world = NULL;
  EXPECT_OK(moeplan_join_create(&place, &join));
  const char* address = moeplan_join_address(join);
  EXPECT_OK(moeplan_world_create(join, &address, &world));
  moeplan_plan plan = example_plan();
  plan.nodes = plan.gpus_per_node = 1;
  plan.expert_parallel = 1;
  moeplan_layer* layer = NULL;
  EXPECT_OK(moeplan_layer_create(world, &plan, &layer));
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    moeplan_layer* other = NULL;
    const int refused = moeplan_layer_create(world, &plan, &other) == MOEPLAN_UNAVAILABLE &&
                        contains(moeplan_last_error(), "forked off process");
    moeplan_layer_free(layer);
    moeplan_world_free(world);
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  moeplan_layer_free(layer);
  moeplan_world_free(world);
  moeplan_join_free(join);
}

int main(void) {
  EXPECT(moeplan_c_version() == MOEPLAN_C_VERSION);
  pthread_t threads[RANKS];
  int ranks[RANKS];
  pthread_barrier_init(&barrier, NULL, RANKS);
  for (int i = 0; i < RANKS; ++i) {
    ranks[i] = i;
    pthread_create(&threads[i], NULL, run_rank, &ranks[i]);
  }
  for (int i = 0; i < RANKS; ++i) pthread_join(threads[i], NULL);
  check_fork();
  if (failures == 0) printf("everything is as expected\n");
  return failures == 0 ? 0 : 1;
}
