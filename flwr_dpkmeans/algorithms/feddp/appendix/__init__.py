"""Steps of FedDP-KMeans' appendix: parts moved nearer, and fewer server points."""
