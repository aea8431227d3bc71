"""What might a right answer to a shipped task say, in the words of one who read the code?"""

RIGHT = {
    "tiny-owned-references": "On drop, Py_DECREF runs (src/py/refs.rs:70). `into_raw` wraps self in ManuallyDrop. "
    "cast_exact returns Err(self). NULL is an error for own and borrow, and None for borrow_opt. PyErrMarker is a "
    "sentinel: the error indicator is set.",
    "tiny-module-life": "PyInit__whenever returns PyModuleDef_Init(&raw mut MODULE_DEF). None is written first since a "
    "GC run could read it. traverse_type visits the type once per singleton plus one, because of a reference cycle. "
    "module_clear takes the state, so a second call is a no-op. module_free just calls module_clear.",
    "tiny-clock-and-zones": "_set_tzpath wants a tuple of str, else TypeError. Before 1970: TypeError too. Frozen "
    "stays, KeepTicking adds the time elapsed since the pin. time_machine is by find_spec. Edition 2024, Rust 1.93.",
    "zone-lookup": "A map of weak references and an LRU of 8. Loading happens outside the lock; another thread may "
    "win. TZPATH first, then tzdata. is_valid_key refuses 100 bytes or more and '..'. A corrupt file gives None and "
    "the same error.",
    "unsafe-layer": "PyAsciiStrBuilder asserts only in debug builds. With operands of one module the left is trusted, "
    "as no slot returns NotImplemented. drop_in_place before generic_dealloc. IMMUTABLETYPE and no GC. Five unsafe "
    "impl, all in sync.rs.",
    "hostile-zone-file": "A negative timecnt becomes a huge capacity. The skip length overflows i32. typecnt has only "
    "a debug_assert. Times are assumed sorted, and clamped. Abbreviations over 8 bytes are refused.",
    "local-to-offset": "Compatible: in a fold the offset before, in a gap moved forward. PreserveOffset keeps the "
    "later offset only if equal. Start and end are swapped for Australia; a negative shift has its own branches. "
    "Sums saturate to avoid a crash. SkippedTime, RepeatedTime; a stated offset that is wrong: InvalidOffsetError.",
    "shared-state": "UnsafeCell under the GIL; Mutex, AtomicPtr and RwLock otherwise. Py_MOD_GIL_NOT_USED and "
    "Py_MOD_PER_INTERPRETER_GIL_SUPPORTED. OncePyCell::get holds &mut while init runs, so re-entry aliases. get_slow "
    "computes first, and an existing value wins. set_paths does not clear the cache. The system_tz_cache is an RwLock "
    "in both builds.",
    "panic-border": "catch_panic!, that is catch_unwind, sets a RuntimeError. A null byte falls back to a shorter "
    "message. The nine __hash__ and, for the deltas, __bool__ slots are unguarded. to_instant() unwraps. So are "
    "generic_dealloc, module_clear and module_free.",
    "exception-map": "RepeatedTime, SkippedTime, InvalidOffsetError and TimeZoneNotFoundError are ValueErrors, "
    "ImplicitlyIgnoringDST is a TypeError and never raised from Rust. WheneverWarning comes from whenever._common. "
    "Under PotentialDstBugWarning: days, StaleOffsetWarning, NaiveArithmeticWarning. 1970 gives a TypeError. "
    "'argment' is misspelt.",
    "module-state": "None is written first as the GC could look; the state replaces it at the end. A class is visited "
    "once per singleton, plus one. module_clear takes it: idempotent. TzStore borrows exc_notfound. strptime by "
    "import: crashes in sub-interpreters. IMMUTABLETYPE avoids a cycle.",
    "date-patterns": "At most 1000 bytes each. Two-pass: a ByteCounter gives the size. Quoted text is not checked for "
    "ASCII. YY and zz are format-only. 24-hour with AM/PM is an error, 12-hour without a warning. A duplicate is found "
    "by its state_key.",
    "number-ranges": "from_fract gives 1_000_000_000 for a tiny negative input. from_nanos_i64 truncates: one second "
    "off. from_timestamp_nanos uses div_euclid. Offsets 86_399, moments from -62_135_596_800. Year and Month have an "
    "unsafe fn, others a debug_assert.",
    "rounding-rules": "Half-even to one second; differences truncate. The step divides 24 hours evenly. to_abs_euclid "
    "and to_abs_trunc. round_day compares the wall clock with half of day_ns. Hours: resolve_preserving_offset. "
    "Ties look at the quotient, but round_day at time_ns % 2.",
    "pickled-bytes": "Date 4, time 7, plain 11, instant 12, offset 15 bytes, little-endian. _unpkl_utc adds the "
    "minimum less 86_400. unpickle of a zoned one does not check the offset. Without a key: ValueError. date delta, "
    "datetime delta and zoned take several arguments. The second check in __reduce__ can never fail.",
    "differences": "InterimDate allows 29 February and clamps later. same_tz or ValueError. zoned_target goes back by "
    "yesterday(). Units in decreasing order, nanoseconds with seconds. total= is a float, an int for nanoseconds. The "
    "default mode is trunc.",
    "text-forms": "10 bytes extended, 8 basic. is_datetime_sep. 60 becomes 59. Below 50 it is 20xx, else 19xx. An "
    "unknown zone is GMT. RFC 2822 drops an offset's seconds.",
}
