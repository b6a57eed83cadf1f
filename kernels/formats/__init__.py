"""One file per sparse format: how it is laid out, compressed, validated and expanded."""
