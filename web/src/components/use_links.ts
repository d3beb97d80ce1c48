// The machines and the fitted links of a version of a profile.
import type { GetLinksResponse } from "../../generated/moeplan/v1/profile_service";
import { call } from "../api/client";
import { useLoaded, type Loaded } from "../api/use_call";

interface Stored {
  profileName: string;
  profileVersion: number;
}

/** Never of another version than asked for; null or undefined: of none. */
export function useLinks(of: Stored | null | undefined): Loaded<GetLinksResponse> {
  const asked = of && { profileName: of.profileName, profileVersion: of.profileVersion };
  const links = useLoaded(asked ? JSON.stringify(asked) : null, (signal) => call<GetLinksResponse>("ProfileService/GetLinks", asked, signal));
  return links.isOld ? { ...links, data: null } : links;
}
