"""The real handler and the real Firestore store, driven one RPC at a time."""
