"""Name the safetensors dtypes that NumPy, or ml_dtypes, and torch have."""

INTEGERS = ("BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64")
SMALL_FLOATS = ("BF16", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0")
NAMES = (*INTEGERS, "F16", "F32", "F64", "C64", "C128", *SMALL_FLOATS)
