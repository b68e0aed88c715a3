"""What the simulator says: the words, the laws and the replies of the upstreams that it plays."""
