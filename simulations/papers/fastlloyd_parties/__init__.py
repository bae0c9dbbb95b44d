"""The clients and the server of the FastLloyd authors' own package, with its calls,
over this package's protocol.

With this folder on the path their page's example runs as it is printed (``from parties
import MaskedClient, Server``, ``from configs import Params``). What their code
simulates is real here: clients agree on keys, masks come from the operating system's
entropy, the plan is priced before anything is computed, and every sum passes the checks
of a run over Flower. Their shared seed for all masks, which any client could use to
open the others' vectors, has no counterpart.
"""
