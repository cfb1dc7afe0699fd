"""The network of this machine: free ports, and the protection of local workers from other machines."""
