"""What tests share: federations in one process, hostile parties, planted bugs, golden
runs.
"""
