// A real agent of a planner, holding all nodes of a simulated cluster.
import { type ChildProcess, spawn } from "node:child_process";

import { clusterFile } from "./fixtures";
import { type Planner, program } from "./planner";

const registersWithinMs = 20_000;

export class Agent {
  private constructor(private readonly process: ChildProcess) {}

  /** Once the planner knows it. */
  static async start(planner: Planner, cluster: string, name: string): Promise<Agent> {
    const args = ["agent", "--planner", planner.grpcAddress, "--simulated", clusterFile, "--cluster", cluster, "--name", name];
    const agent = new Agent(spawn(program, args, { stdio: "ignore" }));
    const end = Date.now() + registersWithinMs;
    for (;;) {
      const { agents } = await planner.call<{ agents: { state: string }[] }>("AgentService/ListAgents", { cluster });
      if (agents.some(({ state }) => state === "LIVE")) return agent;
      if (Date.now() > end) throw new Error(`agent ${name} did not register`);
      await new Promise((done) => setTimeout(done, 100));
    }
  }

  /** Ends it without a goodbye. */
  async kill(): Promise<void> {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const gone = new Promise((done) => this.process.once("exit", done));
    this.process.kill("SIGKILL");
    await gone;
  }
}
