"""Models that others wrote, as cases of tests/equality: tiny configurations, random weights.

make zoo T=retinanet
"""

import zoo_applications as zoo_applications
import zoo_images as zoo_images
import zoo_recommenders as zoo_recommenders
import zoo_text as zoo_text
