"""Names that the lab still uses."""

from arb.data.formats import free_memory as free_memory
