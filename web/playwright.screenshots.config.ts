import base from "./playwright.config";

// Not tests: what `npm run screenshots` writes into docs/images.
export default { ...base, testMatch: "screenshots.ts", workers: 1 };
