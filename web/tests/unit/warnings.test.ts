import { describe, expect, it } from "vitest";

import { unsaid } from "../../src/warnings";

describe("warnings", () => {
  const gate = "GATE modelDim 256: asked at 6.7e+07 bytes, measured 65536 to 1e+06; extrapolated";
  const gateOfAll = "GATE modelDim 256: asked at 3.4e+07 to 6.7e+07 bytes, measured 65536 to 1e+06; extrapolated";
  const free = "PERMUTE: not in the profile; priced 0";

  it("count once for each cost, whatever its sizes", () => {
    expect(unsaid([gateOfAll, free, gate])).toEqual([gateOfAll, free]);
  });

  it("are not said twice", () => {
    expect(unsaid([gate, free], [gateOfAll])).toEqual([free]);
    expect(unsaid([gate, free], [free, gate])).toEqual([]);
  });
});
