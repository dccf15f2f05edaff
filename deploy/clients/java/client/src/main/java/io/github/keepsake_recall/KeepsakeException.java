package io.github.keepsake_recall;

/** A failure that Keepsake reports, under its name in the contract. */
public final class KeepsakeException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    private final String status;
    private final String field;

    public KeepsakeException(String status, String message, String field, Throwable cause) {
        super(status + ": " + message + (field == null ? "" : " (field " + field + ")"), cause);
        this.status = status;
        this.field = field;
    }

    /** A name such as invalid, not_found, overloaded or forbidden. */
    public String status() {
        return status;
    }

    /** The field that is wrong, or null. */
    public String field() {
        return field;
    }
}
