"""FedDP-KMeans (Scott, Lampert, Saulpic): its cost above the optimum, seconds, memory."""
