"""The privacy core: what a claim costs, what it allows, how it is tested.

checks       numbers a person can get wrong          claims       the full claim, in code or in TOML
conversions  epsilon, rho and mu of one another      accounting   the price of a claim, floors of a budget
filters      budgets in exact arithmetic             units        which claim follows from which
ceilings     what an attacker can reach at most      noise        exact samplers and their twin for training
audit        lower bounds from releases              distinguish  statistics that tell two inputs apart
power        what an audit of n releases can see   radial      noise by distance
declared     methods that add noise themselves     mechanism    the trusted loop; draws all protective noise
"""
