"""The engine: scheduler, KV block pool, model runner and sampler, one step at a time."""
