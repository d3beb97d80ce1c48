// What an answer is priced with: a stored profile, public figures of hardware, or both.
import { hrefOf } from "../route";

interface Props {
  profile: string;
  /** 0: hardware alone was named. */
  version: number;
  /** As it was asked, with its suffix. Empty: none. */
  hardware: string;
}

export function PricedFrom({ profile, version, hardware }: Props) {
  if (version === 0) {
    return <p>Priced with public figures of {hardware === "" ? profile : hardware}: nobody measured these machines here. Take it for what to try first.</p>;
  }
  return (
    <p>
      Priced with profile <a href={hrefOf("curves", { profile, version })}>{profile} version {version}</a>
      {hardware !== "" && <>, and with public figures of {hardware} for what that lacks</>}.
    </p>
  );
}
