"""The networks: small-image and full-size ResNets, and others by name through timm."""
