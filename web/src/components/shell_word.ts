/**
 * As a shell takes it for one word: names come from anywhere, and commands are copied. Write `--option=${shellWord(name)}`:
 * a name that begins with "-" is no option then.
 */
export const shellWord = (word: string): string => (/^[\w.:/@%+-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
