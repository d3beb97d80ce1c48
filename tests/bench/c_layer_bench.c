/* How long forward and backward of one MoE layer on one rank take through the C interface.
 *
 * Usage: c_layer_bench MODEL_DIM HIDDEN_DIM EXPERTS TOKENS TIMES
 * Prints the median of TIMES steps, in microseconds. A step sets the gradients to zero, as a training job does.
 * python_layer_bench.py runs a layer of the same sizes from Python beside it. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "executor/c/moeplan.h"

static double now_s(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void check(moeplan_status status) {
  if (status == MOEPLAN_OK) return;
  fprintf(stderr, "c_layer_bench: %s\n", moeplan_last_error());
  exit(1);
}

static float* values(size_t count) {
  float* made = malloc(count * sizeof *made);
  if (made == NULL) exit(1);
  for (size_t i = 0; i < count; ++i) made[i] = 0.1f * ((float)(i * 2654435761u % 1000u) / 500.0f - 1.0f);
  return made;
}

static int by_size(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  if (argc != 6) {
    fprintf(stderr, "c_layer_bench: found %d arguments, expected MODEL_DIM HIDDEN_DIM EXPERTS TOKENS TIMES\n", argc - 1);
    return 2;
  }
  const int model = atoi(argv[1]), hidden = atoi(argv[2]), experts = atoi(argv[3]), tokens = atoi(argv[4]);
  const int times = atoi(argv[5]), before = times / 5 + 1;

  const moeplan_place place = {.ranks = 1, .ranks_per_node = 1, .host_address = "127.0.0.1", .deadline_s = 30};
  moeplan_join* join = NULL;
  check(moeplan_join_create(&place, &join));
  const char* addresses[] = {moeplan_join_address(join)};
  moeplan_world* world = NULL;
  check(moeplan_world_create(join, addresses, &world));
  const moeplan_plan plan = {.nodes = 1,
                             .gpus_per_node = 1,
                             .batch = 1,
                             .sequence_length = tokens,
                             .model_dim = model,
                             .hidden_dim = hidden,
                             .experts = experts,
                             .top_k = 2,
                             .capacity_factor = 1.25,
                             .bytes_per_element = 4,
                             .schedule = "BASELINE",
                             .chunks = 1,
                             .partition_degree = 1};
  moeplan_layer* layer = NULL;
  check(moeplan_layer_create(world, &plan, &layer));

  const size_t rows = (size_t)tokens * model, gate = (size_t)experts * model, matrix = gate * hidden;
  float *input = values(rows), *output = values(rows), *output_gradient = values(rows), *input_gradient = values(rows);
  const moeplan_weights weights = {.gate = values(gate), .up = values(matrix), .down = values(matrix)};
  const moeplan_gradients gradients = {.gate = values(gate), .up = values(matrix), .down = values(matrix)};
  double* took = malloc(sizeof(double) * times);
  for (int i = -before; i < times; ++i) {
    const double start_s = now_s();
    moeplan_pass* pass = NULL;
    check(moeplan_layer_forward(layer, tokens, input, output, &weights, &pass));
    memset(gradients.gate, 0, gate * sizeof(float));
    memset(gradients.up, 0, matrix * sizeof(float));
    memset(gradients.down, 0, matrix * sizeof(float));
    check(moeplan_pass_backward(pass, output_gradient, input_gradient, &gradients));
    moeplan_pass_free(pass);
    if (i >= 0) took[i] = now_s() - start_s;
  }
  qsort(took, times, sizeof(double), by_size);
  printf("%.1f\n", 1e6 * took[times / 2]);
  return 0;
}
