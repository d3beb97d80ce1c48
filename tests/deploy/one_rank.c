/* One rank of a job runs an MoE layer forward and back with what libmoeplan0 and libmoeplan-dev install, against plain
 * loops. Every token takes both experts. Prints what differs, and exits with 1 then. */
#include <math.h>
#include <moeplan/executor/c/moeplan.h>
#include <stdio.h>

enum { TOKENS = 3, M = 4, H = 2, E = 2 };

static int failures = 0;
#define EXPECT(condition)                                                           \
  do {                                                                              \
    if (!(condition)) {                                                             \
      ++failures;                                                                   \
      printf("one_rank: %s does not hold: %s\n", #condition, moeplan_last_error()); \
    }                                                                               \
  } while (0)
#define EXPECT_OK(call) EXPECT((call) == MOEPLAN_OK)

static void fill(float* values, int count, int seed) {
  for (int i = 0; i < count; ++i) values[i] = (float)sin(seed + 1.7 * i);
}

int main(void) {
  const moeplan_place place = {.rank = 0, .ranks = 1, .ranks_per_node = 1, .host_address = "127.0.0.1", .deadline_s = 20};
  const moeplan_plan plan = {.nodes = 1,
                             .gpus_per_node = 1,
                             .batch = 1,
                             .sequence_length = TOKENS,
                             .model_dim = M,
                             .hidden_dim = H,
                             .experts = E,
                             .top_k = E,
                             .capacity_factor = 1,
                             .bytes_per_element = 4,
                             .schedule = "BASELINE"};
  float gate[E * M], up[E * M * H], down[E * H * M], x[TOKENS * M], dy[TOKENS * M], y[TOKENS * M], dx[TOKENS * M];
  float gate_gradient[E * M] = {0}, up_gradient[E * M * H] = {0}, down_gradient[E * H * M] = {0};
  const moeplan_weights weights = {.gate = gate, .up = up, .down = down};
  const moeplan_gradients gradients = {.gate = gate_gradient, .up = up_gradient, .down = down_gradient};
  double expected_y[TOKENS * M] = {0}, expected_gradient[E * H * M] = {0};
  fill(gate, E * M, 1);
  fill(up, E * M * H, 2);
  fill(down, E * H * M, 3);
  fill(x, TOKENS * M, 4);
  fill(dy, TOKENS * M, 5);

  EXPECT(moeplan_c_version() == MOEPLAN_C_VERSION);
  moeplan_join* join = NULL;
  moeplan_world* world = NULL;
  moeplan_layer* layer = NULL;
  moeplan_pass* pass = NULL;
  EXPECT_OK(moeplan_join_create(&place, &join));
  const char* address = moeplan_join_address(join);
  EXPECT_OK(moeplan_world_create(join, &address, &world));
  moeplan_join_free(join);
  EXPECT_OK(moeplan_layer_create(world, &plan, &layer));
  if (layer == NULL) return 1;
  EXPECT_OK(moeplan_layer_forward(layer, TOKENS, x, y, &weights, &pass));
  EXPECT_OK(moeplan_pass_backward(pass, dy, dx, &gradients));
  moeplan_pass_free(pass);
  moeplan_layer_free(layer);
  moeplan_world_free(world);

  for (int t = 0; t < TOKENS; ++t) {
    double probability[E], all = 0;
    for (int e = 0; e < E; ++e) {
      double logit = 0;
      for (int m = 0; m < M; ++m) logit += (double)gate[e * M + m] * x[t * M + m];
      all += probability[e] = exp(logit);
    }
    for (int i = 0; i < E * H; ++i) {
      double sum = 0;
      for (int m = 0; m < M; ++m) sum += (double)x[t * M + m] * up[(i / H * M + m) * H + i % H];
      const double weighed = probability[i / H] / all * 0.5 * sum * (1 + erf(sum / sqrt(2.0)));
      for (int m = 0; m < M; ++m) {
        expected_y[t * M + m] += weighed * down[i * M + m];
        expected_gradient[i * M + m] += weighed * dy[t * M + m];
      }
    }
  }
  for (int i = 0; i < TOKENS * M; ++i) EXPECT(fabs(y[i] - expected_y[i]) < 1e-5);
  for (int i = 0; i < E * H * M; ++i) EXPECT(fabs(down_gradient[i] - expected_gradient[i]) < 1e-5);
  return failures == 0 ? 0 : 1;
}
