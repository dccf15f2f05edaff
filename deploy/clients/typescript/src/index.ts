export { Keepsake, KeepsakeError, type Options } from "./client.js";
export type * from "./messages.js";
