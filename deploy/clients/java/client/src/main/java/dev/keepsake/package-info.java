/** Client of Keepsake, long-term memory for chat and agent applications. */
package dev.keepsake;
