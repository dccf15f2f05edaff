/** Client of Keepsake, long-term memory for chat and agent applications. */
package io.github.keepsake_recall;
