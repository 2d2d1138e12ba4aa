"""A signalled crossing in SUMO: net, demand, the committed counts and tracks, and pictures of them.

    network/crossing.nod.xml, .edg.xml   ours: five nodes, eight edges with two lanes and a sidewalk each
    network/crossing.net.xml             what netconvert 1.28.0 makes of them (see simulate.NETCONVERT)
    counts.npz, tracks.npz               what the simulation gave, checked against digests.json
"""
