// The 90 % interval of a predicted time. Pure.

/** Profiles written by hand tell no spread: what is predicted with them has an interval of no width, which is none. */
export const hasInterval = (plan: {lowS: number; highS: number}): boolean => plan.highS > plan.lowS;
