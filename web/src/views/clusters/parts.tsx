// Small pieces that several parts of this view share.
import * as text from "../../format";

/** "3 hours ago", with the time itself for who points at it. */
export function Age({ time }: { time: string }) {
  if (time === "") return <>never</>;
  return <time dateTime={time} title={time}>{text.age(time, Date.now())}</time>;
}
