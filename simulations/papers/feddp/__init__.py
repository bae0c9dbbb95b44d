"""FedDP-KMeans (Scott, Lampert, Saulpic): cost above the optimum, seconds, memory."""
