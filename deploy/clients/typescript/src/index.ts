export { Keepsake, KeepsakeError, type Options } from "./client.js";
export { memoryOf, remembering, Remembering, type Remembered } from "./remembering.js";
export type * from "./messages.js";
