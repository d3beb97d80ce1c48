"""What travels with the errors of calls (proto/moeplan/rpc), generated when the package is built."""
