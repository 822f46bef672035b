/** One prompt: text as it comes. Several: each text whole, under its number, at the end. */
export class TextOutput {
  readonly #texts: string[];
  readonly #print: (text: string) => void;

  constructor(requests: number, print: (text: string) => void) {
    this.#texts = Array.from({ length: requests }, () => '');
    this.#print = print;
  }

  add(request: number, text: string): void {
    this.#texts[request] += text;
    if (this.#texts.length === 1) this.#print(text);
  }

  /** `texts` are the whole ones: an interruption lets out what was held back for a stop string. */
  end(texts: readonly string[]): void {
    if (texts.length === 1) this.#print(`${texts[0]!.slice(this.#texts[0]!.length)}\n`);
    else for (const [index, text] of texts.entries()) this.#print(`[${index}] ${text}\n`);
  }
}
