import base from "./playwright.config";

// Not tests: what `npm run speed` measures. A trace would be measured with it.
export default { ...base, testMatch: "speed.ts", workers: 1, timeout: 580_000, use: { ...base.use, trace: "off" as const } };
