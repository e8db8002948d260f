"""What pages show, computed without pages: network scenes, SVG pictures, numbers as text, fields as PNG.

May import: no other room of the dashboard.
"""
