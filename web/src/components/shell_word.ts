/** As a shell takes it for one word: names come from anywhere, and commands are copied. */
export const shellWord = (word: string): string => (/^[\w.:/@%+-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
