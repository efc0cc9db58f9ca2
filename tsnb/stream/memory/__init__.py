"""One shared memory, cut in slots, mapped once by everyone; and the views over it that keep a batch alive."""
