// What the form begins with: the quick start's workload.
export { default as example } from "../../../../deploy/examples/workload.json?raw";
