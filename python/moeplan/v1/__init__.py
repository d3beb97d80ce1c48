"""The messages and services of proto/moeplan/v1, generated when the package is built: plan_pb2, planner_service_pb2_grpc,
..."""
