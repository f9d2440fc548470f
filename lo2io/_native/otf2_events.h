/* The native OTF2 event loop: batches in, OTF2_EvtWriter_* calls out. Plain declarations, read by cffi. */
